; The command processor's IR, first half: time, sleeping, signals, what the host calls, and the groups of a dispatch.
;
; Next     processor.py (the story of the threads), processor_packets.ll (the other half: packets, the main loop)
;
; help() is where groups run, on the command processor and on workers alike: take a ticket; a positive one is a claim, and
; while a claim is out the job it belongs to cannot end, so what describes the job stands still.

target triple = "$triple"

@waiters = internal global i32 0            ; host threads that sleep on any signal cell

declare i64 @syscall(i64, ...)
declare i32 @clock_gettime(i32, ptr)
declare ptr @memcpy(ptr, ptr, i64)
declare ptr @memmove(ptr, ptr, i64)
declare void $pause_declaration

; ---------------------------------------------------------------- time, spinning, sleeping

define i64 @now_ns() {
  %t = alloca [2 x i64]
  %e = call i32 @clock_gettime(i32 1, ptr %t)          ; CLOCK_MONOTONIC
  %s = load i64, ptr %t
  %np = getelementptr i8, ptr %t, i64 8
  %n = load i64, ptr %np
  %sn = mul i64 %s, 1000000000
  %r = add i64 %sn, %n
  ret i64 %r
}

define internal void @pause8() {
  call void $pause
  call void $pause
  call void $pause
  call void $pause
  call void $pause
  call void $pause
  call void $pause
  call void $pause
  ret void
}

define internal void @futex_wait(ptr %word, i32 %seen, i64 %timeout_ns) noinline {
  %t = alloca [2 x i64]
  %s = udiv i64 %timeout_ns, 1000000000
  %n = urem i64 %timeout_ns, 1000000000
  store i64 %s, ptr %t
  %np = getelementptr i8, ptr %t, i64 8
  store i64 %n, ptr %np
  %r = call i64 (i64, ...) @syscall(i64 $futex, ptr %word, i32 128, i32 %seen, ptr %t, ptr null, i32 0)
  ret void
}

define internal void @futex_wake(ptr %word, i32 %count) noinline {
  %r = call i64 (i64, ...) @syscall(i64 $futex, ptr %word, i32 129, i32 %count, ptr null, ptr null, i32 0)
  ret void
}

; spin until the word is no longer `seen` or the time is up
define internal void @spin_while(ptr %word, i32 %seen, i64 %spin_ns) noinline {
entry:
  %start = call i64 @now_ns()
  br label %look
look:
  %v = load atomic i32, ptr %word acquire, align 4
  %same = icmp eq i32 %v, %seen
  br i1 %same, label %rest, label %out
rest:
  call void @pause8()
  %y = call i64 (i64, ...) @syscall(i64 $yield)  ; whoever shares our core, Python perhaps, goes first
  %t = call i64 @now_ns()
  %d = sub i64 %t, %start
  %more = icmp ult i64 %d, %spin_ns
  br i1 %more, label %look, label %out
out:
  ret void
}

; ---------------------------------------------------------------- signals

; store time, then value; wake whoever sleeps on a cell
define void @signal_set(ptr %cell, i64 %value) {
entry:
  %t = call i64 @now_ns()
  %tp = getelementptr i8, ptr %cell, i64 $SignalCell.timestamp_ns
  store i64 %t, ptr %tp
  store atomic i64 %value, ptr %cell seq_cst, align 8
  %w = load atomic i32, ptr @waiters seq_cst, align 4
  %any = icmp ne i32 %w, 0
  br i1 %any, label %wake, label %out
wake:
  call void @futex_wake(ptr %cell, i32 2147483647)
  br label %out
out:
  ret void
}

; spin, then sleep once; returns the value seen last, which may be too small (time is up, or a stray wake-up)
define i64 @signal_wait(ptr %cell, i64 %value, i64 %timeout_ns, i64 %spin_ns) {
entry:
  %v0 = load atomic i64, ptr %cell acquire, align 8
  %d0 = icmp uge i64 %v0, %value
  br i1 %d0, label %fast, label %begin
fast:
  ret i64 %v0
begin:
  %start = call i64 @now_ns()
  br label %spin
spin:
  call void @pause8()
  %v1 = load atomic i64, ptr %cell acquire, align 8
  %d1 = icmp uge i64 %v1, %value
  br i1 %d1, label %spun, label %clock
spun:
  ret i64 %v1
clock:
  %y = call i64 (i64, ...) @syscall(i64 $yield)
  %t = call i64 @now_ns()
  %e = sub i64 %t, %start
  %more = icmp ult i64 %e, %spin_ns
  br i1 %more, label %spin, label %sleepy
sleepy:
  %left = sub i64 %timeout_ns, %e
  %some = icmp sgt i64 %left, 0
  br i1 %some, label %announce, label %last
announce:
  %w = atomicrmw add ptr @waiters, i32 1 seq_cst
  %v2 = load atomic i64, ptr %cell seq_cst, align 8
  %d2 = icmp uge i64 %v2, %value
  br i1 %d2, label %awake, label %sleep
sleep:
  %low = trunc i64 %v2 to i32
  call void @futex_wait(ptr %cell, i32 %low, i64 %left)
  br label %awake
awake:
  %x = atomicrmw sub ptr @waiters, i32 1 seq_cst
  br label %last
last:
  %v3 = load atomic i64, ptr %cell acquire, align 8
  ret i64 %v3
}

; ---------------------------------------------------------------- what the host calls

; publish `put`, change the doorbell, wake the command processor if it sleeps
define void @doorbell_ring(ptr %q, i64 %put) {
entry:
  %pp = getelementptr i8, ptr %q, i64 $Control.put
  %dp = getelementptr i8, ptr %q, i64 $Control.doorbell
  %ap = getelementptr i8, ptr %q, i64 $Control.asleep
  store atomic i64 %put, ptr %pp release, align 8
  %old = atomicrmw add ptr %dp, i32 1 seq_cst
  %a = load atomic i32, ptr %ap seq_cst, align 4
  %any = icmp ne i32 %a, 0
  br i1 %any, label %wake, label %out
wake:
  call void @futex_wake(ptr %dp, i32 1)
  br label %out
out:
  ret void
}

; a fault has been seen to: go on
define void @fault_clear(ptr %q) {
  %ab = getelementptr i8, ptr %q, i64 $Control.abandon
  store atomic i32 0, ptr %ab seq_cst, align 4
  %fp = getelementptr i8, ptr %q, i64 $Control.fault
  store atomic i32 0, ptr %fp seq_cst, align 4
  call void @futex_wake(ptr %fp, i32 1)
  ret void
}

; every thread ends as soon as it is between two packets
define void @stop_all(ptr %q) {
  %sp = getelementptr i8, ptr %q, i64 $Control.stop
  %dp = getelementptr i8, ptr %q, i64 $Control.doorbell
  %op = getelementptr i8, ptr %q, i64 $Control.posted
  %fp = getelementptr i8, ptr %q, i64 $Control.fault
  store atomic i32 1, ptr %sp seq_cst, align 4
  %d = atomicrmw add ptr %dp, i32 1 seq_cst
  call void @futex_wake(ptr %dp, i32 1)
  %o = atomicrmw add ptr %op, i32 1 seq_cst
  call void @futex_wake(ptr %op, i32 2147483647)
  call void @futex_wake(ptr %fp, i32 1)
  ret void
}

; ---------------------------------------------------------------- groups

; call a C function with every register and enough stack slots filled from `slots`
define internal void @call_kernel(ptr %entry, ptr %slots, i32 %floats, i32 %stack) {
begin:
  %has = icmp ne i32 %floats, 0
  br i1 %has, label %with, label %without
without:
  %a0 = icmp eq i32 %stack, 0
  br i1 %a0, label %call_0_0, label %w0
w0:
  %a4 = icmp ule i32 %stack, 4
  br i1 %a4, label %call_0_4, label %w4
w4:
  %a16 = icmp ule i32 %stack, 16
  br i1 %a16, label %call_0_16, label %w16
w16:
  %a64 = icmp ule i32 %stack, 64
  br i1 %a64, label %call_0_64, label %call_0_256
with:
  %b0 = icmp eq i32 %stack, 0
  br i1 %b0, label %call_1_0, label %f0
f0:
  %b4 = icmp ule i32 %stack, 4
  br i1 %b4, label %call_1_4, label %f4
f4:
  %b16 = icmp ule i32 %stack, 16
  br i1 %b16, label %call_1_16, label %f16
f16:
  %b64 = icmp ule i32 %stack, 64
  br i1 %b64, label %call_1_64, label %call_1_256
$calls
}

; copy a dispatch's arguments and fill in what is the same for all its groups
define internal void @prepare(ptr %q, ptr %p, i64 %worker, ptr %slots, ptr %group) {
  %lp = getelementptr i8, ptr %p, i64 2
  %l16 = load i16, ptr %lp
  %l = zext i16 %l16 to i64
  %tail = sub i64 %l, $Dispatch.length_words
  %bytes = shl i64 %tail, 2
  %args = getelementptr i32, ptr %p, i64 $Dispatch.length_words
  %c = call ptr @memcpy(ptr %slots, ptr %args, i64 %bytes)
  %gsp = getelementptr i8, ptr %p, i64 $Dispatch.group_slot
  %gs16 = load i16, ptr %gsp
  %gs = zext i16 %gs16 to i64
  %slot = getelementptr i64, ptr %slots, i64 %gs
  store ptr %group, ptr %slot
  %gxp = getelementptr i8, ptr %p, i64 $Dispatch.grid_x
  %gyp = getelementptr i8, ptr %p, i64 $Dispatch.grid_y
  %gzp = getelementptr i8, ptr %p, i64 $Dispatch.grid_z
  %sbp = getelementptr i8, ptr %p, i64 $Dispatch.scratch_bytes
  %gx32 = load i32, ptr %gxp
  %gy32 = load i32, ptr %gyp
  %gz32 = load i32, ptr %gzp
  %sb = load i64, ptr %sbp
  %gx = zext i32 %gx32 to i64
  %gy = zext i32 %gy32 to i64
  %gz = zext i32 %gz32 to i64
  %ox = getelementptr i8, ptr %group, i64 $Group.grid_x
  %oy = getelementptr i8, ptr %group, i64 $Group.grid_y
  %oz = getelementptr i8, ptr %group, i64 $Group.grid_z
  %os = getelementptr i8, ptr %group, i64 $Group.scratch
  %ob = getelementptr i8, ptr %group, i64 $Group.scratch_bytes
  %ow = getelementptr i8, ptr %group, i64 $Group.worker
  store i64 %gx, ptr %ox
  store i64 %gy, ptr %oy
  store i64 %gz, ptr %oz
  store i64 %sb, ptr %ob
  store i64 %worker, ptr %ow
  %scp = getelementptr i8, ptr %q, i64 $Control.scratch
  %ssp = getelementptr i8, ptr %q, i64 $Control.scratch_stride
  %sc = load i64, ptr %scp
  %ss = load i64, ptr %ssp
  %so = mul i64 %ss, %worker
  %sa = add i64 %sc, %so
  store i64 %sa, ptr %os
  ret void
}

define internal void @run_range(ptr %p, ptr %slots, ptr %group, i64 %first, i64 %last) {
  store i64 %first, ptr %group
  %lp = getelementptr i8, ptr %group, i64 $Group.last
  store i64 %last, ptr %lp
  %ep = getelementptr i8, ptr %p, i64 $Dispatch.entry
  %entry = load ptr, ptr %ep
  %fp = getelementptr i8, ptr %p, i64 $Dispatch.has_floats
  %f8 = load i8, ptr %fp
  %f = zext i8 %f8 to i32
  %sp = getelementptr i8, ptr %p, i64 $Dispatch.stack_slots
  %s16 = load i16, ptr %sp
  %s = zext i16 %s16 to i32
  call void @call_kernel(ptr %entry, ptr %slots, i32 %f, i32 %s)
  ret void
}

; take claims of the current job until there are none
define internal void @help(ptr %q, i64 %worker) noinline {
entry:
  %slots = alloca [$max_slots x i64], align 64
  %group = alloca [$Group.length_words x i32], align 64
  %tp = getelementptr i8, ptr %q, i64 $Control.ticket
  %r0 = atomicrmw sub ptr %tp, i64 1 seq_cst
  %mine = icmp sgt i64 %r0, 0
  br i1 %mine, label %begin, label %none
none:
  ret void
begin:                                       ; our claim keeps the job, so what describes it stands still
  %pp = getelementptr i8, ptr %q, i64 $Control.job_packet
  %cp = getelementptr i8, ptr %q, i64 $Control.job_claims
  %sp = getelementptr i8, ptr %q, i64 $Control.job_claim_groups
  %p = load ptr, ptr %pp
  %claims = load i64, ptr %cp
  %size = load i64, ptr %sp
  %np = getelementptr i8, ptr %p, i64 $Dispatch.groups
  %groups = load i64, ptr %np
  call void @prepare(ptr %q, ptr %p, i64 %worker, ptr %slots, ptr %group)
  br label %claim
claim:
  %r = phi i64 [ %r0, %begin ], [ %rn, %claim ]
  %k = phi i32 [ 0, %begin ], [ %kn, %claim ]
  %index = sub i64 %claims, %r
  %first = mul i64 %index, %size
  %end = add i64 %first, %size
  %over = icmp ugt i64 %end, %groups
  %last = select i1 %over, i64 %groups, i64 %end
  call void @run_range(ptr %p, ptr %slots, ptr %group, i64 %first, i64 %last)
  %kn = add i32 %k, 1
  %rn = atomicrmw sub ptr %tp, i64 1 seq_cst
  %again = icmp sgt i64 %rn, 0
  br i1 %again, label %claim, label %finish
finish:
  %dp = getelementptr i8, ptr %q, i64 $Control.done
  %ap = getelementptr i8, ptr %q, i64 $Control.done_awaited
  %old = atomicrmw add ptr %dp, i32 %kn seq_cst
  %a = load atomic i32, ptr %ap seq_cst, align 4
  %awaited = icmp ne i32 %a, 0
  br i1 %awaited, label %wake, label %out
wake:
  call void @futex_wake(ptr %dp, i32 1)
  br label %out
out:
  ret void
}

define ptr @worker_main(ptr %start) {
entry:
  %qp = getelementptr i8, ptr %start, i64 $WorkerStart.control
  %q = load ptr, ptr %qp
  %ip = getelementptr i8, ptr %start, i64 $WorkerStart.index
  %index = load i64, ptr %ip
  %tp = getelementptr i8, ptr %q, i64 $Control.ticket
  %op = getelementptr i8, ptr %q, i64 $Control.posted
  %lp = getelementptr i8, ptr %q, i64 $Control.sleepers
  %sp = getelementptr i8, ptr %q, i64 $Control.stop
  %np = getelementptr i8, ptr %q, i64 $Control.worker_spin_ns
  %spin = load i64, ptr %np
  br label %look
look:
  %stop = load atomic i32, ptr %sp seq_cst, align 4
  %stopped = icmp ne i32 %stop, 0
  br i1 %stopped, label %out, label %check
check:
  %seen = load atomic i32, ptr %op seq_cst, align 4
  %t = load atomic i64, ptr %tp seq_cst, align 8
  %work = icmp sgt i64 %t, 0
  br i1 %work, label %go, label %idle
go:
  call void @help(ptr %q, i64 %index)
  br label %look
idle:
  call void @spin_while(ptr %op, i32 %seen, i64 %spin)
  %now = load atomic i32, ptr %op seq_cst, align 4
  %changed = icmp ne i32 %now, %seen
  br i1 %changed, label %look, label %announce
announce:
  %a = atomicrmw add ptr %lp, i32 1 seq_cst
  call void @futex_wait(ptr %op, i32 %seen, i64 10000000000)
  %b = atomicrmw sub ptr %lp, i32 1 seq_cst
  br label %look
out:
  %rp = getelementptr i8, ptr %q, i64 $Control.running
  %r = atomicrmw sub ptr %rp, i32 1 seq_cst
  call void @futex_wake(ptr %rp, i32 2147483647)
  ret ptr null
}
