// One kernel in objects of its own: which of them runs is what it stores. Code that was loaded where other code lay, and that
// the GPU still had in its instruction cache, stores the other's mark.
kernel void mark(global uint *x) { x[__builtin_amdgcn_workitem_id_x()] = MARK; }
