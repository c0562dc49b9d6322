// HSA without HIP: packets written by hand. Partial workgroups, scratch memory that the runtime gives when the queue asks,
// barriers on all and on any signals, copies by the copy engines, fills, locked memory, profiling.
#include <hsa/hsa.h>
#include <hsa/hsa_ext_amd.h>

#include <fcntl.h>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#define CHECK(call)                                                  \
    do {                                                             \
        hsa_status_t status = (call);                                \
        if (status != HSA_STATUS_SUCCESS && status != HSA_STATUS_INFO_BREAK) { \
            std::printf("%s -> %#x\n", #call, status);               \
            std::exit(2);                                            \
        }                                                            \
    } while (0)

static hsa_agent_t gpu, cpu;
static hsa_amd_memory_pool_t device_memory, kernel_arguments, host_memory;
static hsa_queue_t *queue;

static hsa_status_t find_agent(hsa_agent_t agent, void *) {
    hsa_device_type_t type;
    CHECK(hsa_agent_get_info(agent, HSA_AGENT_INFO_DEVICE, &type));
    (type == HSA_DEVICE_TYPE_GPU ? gpu : cpu) = agent;
    return HSA_STATUS_SUCCESS;
}

static hsa_status_t find_pool(hsa_amd_memory_pool_t pool, void *is_gpu) {
    hsa_amd_segment_t segment;
    uint32_t flags;
    CHECK(hsa_amd_memory_pool_get_info(pool, HSA_AMD_MEMORY_POOL_INFO_SEGMENT, &segment));
    if (segment != HSA_AMD_SEGMENT_GLOBAL) return HSA_STATUS_SUCCESS;
    CHECK(hsa_amd_memory_pool_get_info(pool, HSA_AMD_MEMORY_POOL_INFO_GLOBAL_FLAGS, &flags));
    if (is_gpu)
        device_memory = pool;
    else if (flags & HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_KERNARG_INIT)
        kernel_arguments = pool;
    else
        host_memory = pool;
    return HSA_STATUS_SUCCESS;
}

static void *allocate(hsa_amd_memory_pool_t pool, size_t size) {
    void *memory;
    CHECK(hsa_amd_memory_pool_allocate(pool, size, 0, &memory));
    CHECK(hsa_amd_agents_allow_access(1, &gpu, nullptr, memory));
    return memory;
}

static hsa_signal_t signal_of(hsa_signal_value_t value) {
    hsa_signal_t signal;
    CHECK(hsa_signal_create(value, 0, nullptr, &signal));
    return signal;
}

static void await(hsa_signal_t signal) {
    while (hsa_signal_wait_scacquire(signal, HSA_SIGNAL_CONDITION_LT, 1, UINT64_MAX, HSA_WAIT_STATE_BLOCKED) > 0) {
    }
}

// Put 64 bytes into the next slot; the first word last.
static void submit(const void *packet, uint16_t header) {
    uint64_t index = hsa_queue_add_write_index_relaxed(queue, 1);
    char *slot = (char *)queue->base_address + 64 * (index % queue->size);
    memcpy(slot + 4, (const char *)packet + 4, 60);
    uint32_t first;
    memcpy(&first, packet, 4);
    __atomic_store_n((uint32_t *)slot, first & 0xFFFF0000 | header, __ATOMIC_RELEASE);
    hsa_signal_store_screlease(queue->doorbell_signal, index);
}

static uint16_t header_of(hsa_packet_type_t type, bool barrier) {
    return type << HSA_PACKET_HEADER_TYPE | barrier << HSA_PACKET_HEADER_BARRIER |
           HSA_FENCE_SCOPE_SYSTEM << HSA_PACKET_HEADER_SCACQUIRE_FENCE_SCOPE |
           HSA_FENCE_SCOPE_SYSTEM << HSA_PACKET_HEADER_SCRELEASE_FENCE_SCOPE;
}

static void dispatch(hsa_executable_t program, const char *name, uint32_t items, void *a, uint64_t b, hsa_signal_t done) {
    hsa_executable_symbol_t symbol;
    CHECK(hsa_executable_get_symbol_by_name(program, name, &gpu, &symbol));
    hsa_kernel_dispatch_packet_t packet = {};
    CHECK(hsa_executable_symbol_get_info(symbol, HSA_EXECUTABLE_SYMBOL_INFO_KERNEL_OBJECT, &packet.kernel_object));
    CHECK(hsa_executable_symbol_get_info(symbol, HSA_EXECUTABLE_SYMBOL_INFO_KERNEL_PRIVATE_SEGMENT_SIZE,
                                         &packet.private_segment_size));
    void **arguments = (void **)allocate(kernel_arguments, 4096);
    memset(arguments, 0, 4096);
    arguments[0] = a;
    arguments[1] = (void *)b;
    packet.setup = 1;
    packet.workgroup_size_x = 64;
    packet.workgroup_size_y = packet.workgroup_size_z = 1;
    packet.grid_size_x = items;
    packet.grid_size_y = packet.grid_size_z = 1;
    packet.kernarg_address = arguments;
    packet.completion_signal = done;
    submit(&packet, header_of(HSA_PACKET_TYPE_KERNEL_DISPATCH, true));
}

static void barrier(hsa_packet_type_t type, std::vector<hsa_signal_t> on, hsa_signal_t done) {
    hsa_barrier_and_packet_t packet = {};
    for (size_t i = 0; i < on.size(); i++) packet.dep_signal[i] = on[i];
    packet.completion_signal = done;
    submit(&packet, header_of(type, true));
}

int main(int, char **arguments) {
    CHECK(hsa_init());
    CHECK(hsa_iterate_agents(find_agent, nullptr));
    CHECK(hsa_amd_agent_iterate_memory_pools(gpu, find_pool, (void *)1));
    CHECK(hsa_amd_agent_iterate_memory_pools(cpu, find_pool, nullptr));
    CHECK(hsa_queue_create(gpu, 64, HSA_QUEUE_TYPE_MULTI, nullptr, nullptr, UINT32_MAX, UINT32_MAX, &queue));
    CHECK(hsa_amd_profiling_set_profiler_enabled(queue, 1));
    hsa_code_object_reader_t reader;
    hsa_executable_t program;
    CHECK(hsa_code_object_reader_create_from_file(open(arguments[1], O_RDONLY), &reader));
    CHECK(hsa_executable_create_alt(HSA_PROFILE_BASE, HSA_DEFAULT_FLOAT_ROUNDING_MODE_DEFAULT, nullptr, &program));
    CHECK(hsa_executable_load_agent_code_object(program, gpu, reader, nullptr, nullptr));
    CHECK(hsa_executable_freeze(program, nullptr));
    int wrong = 0;

    const uint32_t items = 1003;  // 15 workgroups and a part of one
    uint32_t *seen = (uint32_t *)allocate(device_memory, 4096), *host = (uint32_t *)allocate(host_memory, 4096);
    CHECK(hsa_amd_memory_fill(seen, 0, 1024));
    hsa_signal_t done = signal_of(1), copied = signal_of(1);
    dispatch(program, "counts.kd", items, seen, items, done);
    await(done);
    hsa_amd_profiling_dispatch_time_t time = {};
    CHECK(hsa_amd_profiling_get_dispatch_time(gpu, done, &time));
    wrong += !(time.start && time.end >= time.start);
    CHECK(hsa_amd_memory_async_copy(host, cpu, seen, gpu, 4096, 0, nullptr, copied));
    await(copied);
    wrong += host[items] != items;
    for (uint32_t i = 0; i < items; i++) wrong += host[i] != 3 * i;
    std::printf("partial workgroups: %d wrong\n", wrong);

    std::vector<uint32_t> order(32), out(640);
    for (uint32_t i = 0; i < 32; i++) order[i] = (i * 13 + 7) % 32;
    uint32_t *locked_out, *locked_order;
    CHECK(hsa_amd_memory_lock(out.data(), 2560, &gpu, 1, (void **)&locked_out));
    CHECK(hsa_amd_memory_lock(order.data(), 128, &gpu, 1, (void **)&locked_order));
    hsa_signal_t scrambled = signal_of(1);
    dispatch(program, "scrambles.kd", 640, locked_out, (uint64_t)locked_order, scrambled);
    await(scrambled);
    for (uint32_t t = 0; t < 640; t++) {
        uint32_t kept[32], sum = 0;
        for (uint32_t i = 0; i < 32; i++) kept[order[i]] = i + t % 64;
        for (uint32_t i = 0; i < 32; i++) sum = 5 * sum + kept[i];
        wrong += out[t] != sum;
    }
    std::printf("scratch and locked memory: %d wrong\n", wrong);

    hsa_signal_t one = signal_of(1), other = signal_of(1), any = signal_of(1), all = signal_of(1);
    barrier(HSA_PACKET_TYPE_BARRIER_OR, {one, other}, any);
    barrier(HSA_PACKET_TYPE_BARRIER_AND, {one, other}, all);
    hsa_signal_store_screlease(other, 0);
    await(any);
    wrong += hsa_signal_load_scacquire(all) != 1;
    hsa_signal_store_screlease(one, 0);
    await(all);
    CHECK(hsa_amd_memory_unlock(out.data()));
    CHECK(hsa_amd_memory_unlock(order.data()));
    CHECK(hsa_queue_destroy(queue));
    CHECK(hsa_shut_down());
    std::printf("hsa_dispatch: %d wrong\n", wrong);
    return wrong != 0;
}
