// rocThrust, which stands on rocPRIM: a radix sort, a scan with decoupled look-back, reductions, a selection.
#include <thrust/device_vector.h>
#include <thrust/host_vector.h>
#include <thrust/reduce.h>
#include <thrust/scan.h>
#include <thrust/sort.h>
#include <thrust/unique.h>

#include <algorithm>

#include "check.h"

int main() {
    const int count = 50000, runs = 30000;
    thrust::host_vector<unsigned> host(count);
    unsigned state = 1;
    for (unsigned &one : host) one = state = state * 1664525 + 1013904223;
    thrust::device_vector<unsigned> numbers = host;
    thrust::sort(numbers.begin(), numbers.end());
    std::sort(host.begin(), host.end());
    thrust::host_vector<unsigned> back = numbers;
    int wrong = 0;
    for (int i = 0; i < count; i++) wrong += back[i] != host[i];

    thrust::exclusive_scan(numbers.begin(), numbers.end(), numbers.begin());
    back = numbers;
    unsigned sum = 0;
    for (int i = 0; i < count; sum += host[i++]) wrong += back[i] != sum;

    thrust::host_vector<int> steps(runs);
    int total = 0;
    for (int i = 0; i < runs; i++) total += steps[i] = i / 7 % 11;
    thrust::device_vector<int> on_gpu = steps;
    wrong += thrust::reduce(on_gpu.begin(), on_gpu.end()) != total;
    wrong += thrust::unique(on_gpu.begin(), on_gpu.end()) - on_gpu.begin() != (runs + 6) / 7;
    return finish("algorithms", wrong);
}
