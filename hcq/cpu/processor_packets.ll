; The command processor's IR, second half: what each packet does, and the loop that takes packets from the ring.
;
; Next     processor.py (the story of the threads), processor_groups.ll (the other half), packets.py (the words)
;
; do_packet() checks a packet's opcode and length before it acts, and returns a Fault or 0. processor_main() publishes
; `get` after every packet, so the host may reuse its words; after a fault it halts until the host clears the fault.

; ---------------------------------------------------------------- packets

define internal i32 @do_dispatch(ptr %q, ptr %p) {
entry:
  %slots = alloca [$max_slots x i64], align 64
  %group = alloca [$Group.length_words x i32], align 64
  %ep = getelementptr i8, ptr %p, i64 $Dispatch.entry
  %e = load i64, ptr %ep
  %np = getelementptr i8, ptr %p, i64 $Dispatch.groups
  %groups = load i64, ptr %np
  %gsp = getelementptr i8, ptr %p, i64 $Dispatch.group_slot
  %gs16 = load i16, ptr %gsp
  %gs = zext i16 %gs16 to i64
  %lp = getelementptr i8, ptr %p, i64 2
  %l16 = load i16, ptr %lp
  %l = zext i16 %l16 to i64
  %tail = sub i64 %l, $Dispatch.length_words
  %n_slots = ashr i64 %tail, 1
  %bad0 = icmp eq i64 %e, 0
  %bad1 = icmp slt i64 %groups, 1
  %bad2 = icmp uge i64 %gs, %n_slots
  %bad3 = icmp ugt i64 %n_slots, $max_slots
  %bad01 = or i1 %bad0, %bad1
  %bad23 = or i1 %bad2, %bad3
  %bad = or i1 %bad01, %bad23
  br i1 %bad, label %refuse, label %size
refuse:
  ret i32 $Fault.BAD_DISPATCH
size:
  %countp = getelementptr i8, ptr %q, i64 $Control.dispatches
  %count = load i64, ptr %countp
  %count1 = add i64 %count, 1
  store i64 %count1, ptr %countp
  %thp = getelementptr i8, ptr %q, i64 $Control.threads
  %threads = load i64, ptr %thp
  %one_group = icmp eq i64 %groups, 1
  %one_thread = icmp ule i64 %threads, 1
  %inline = or i1 %one_group, %one_thread
  br i1 %inline, label %alone, label %split
alone:
  call void @prepare(ptr %q, ptr %p, i64 0, ptr %slots, ptr %group)
  call void @run_range(ptr %p, ptr %slots, ptr %group, i64 0, i64 %groups)
  ret i32 0
split:                                       ; about eight claims a thread, unless the packet says how many groups each
  %sizep = getelementptr i8, ptr %p, i64 $Dispatch.groups_per_claim
  %size32 = load i32, ptr %sizep
  %given = zext i32 %size32 to i64
  %eight = shl i64 %threads, 3
  %share = udiv i64 %groups, %eight
  %share1 = call i64 @llvm.umax.i64(i64 %share, i64 1)
  %is_given = icmp ne i64 %given, 0
  %want = select i1 %is_given, i64 %given, i64 %share1
  %least = lshr i64 %groups, 30               ; claims are counted in 32 bits
  %least1 = add i64 %least, 1
  %use = call i64 @llvm.umax.i64(i64 %want, i64 %least1)
  %top = add i64 %groups, %use
  %top1 = sub i64 %top, 1
  %claims = udiv i64 %top1, %use
  %jp = getelementptr i8, ptr %q, i64 $Control.job_packet
  %jc = getelementptr i8, ptr %q, i64 $Control.job_claims
  %js = getelementptr i8, ptr %q, i64 $Control.job_claim_groups
  %dp = getelementptr i8, ptr %q, i64 $Control.done
  %ap = getelementptr i8, ptr %q, i64 $Control.done_awaited
  %tp = getelementptr i8, ptr %q, i64 $Control.ticket
  %op = getelementptr i8, ptr %q, i64 $Control.posted
  %slp = getelementptr i8, ptr %q, i64 $Control.sleepers
  store ptr %p, ptr %jp
  store i64 %claims, ptr %jc
  store i64 %use, ptr %js
  store atomic i32 0, ptr %dp seq_cst, align 4
  store atomic i64 %claims, ptr %tp seq_cst, align 8
  %o = atomicrmw add ptr %op, i32 1 seq_cst
  %sl = load atomic i32, ptr %slp seq_cst, align 4
  %any = icmp ne i32 %sl, 0
  br i1 %any, label %wake, label %work
wake:
  %others = sub i64 %claims, 1
  %few = call i64 @llvm.umin.i64(i64 %others, i64 1024)
  %few32 = trunc i64 %few to i32
  call void @futex_wake(ptr %op, i32 %few32)
  br label %work
work:
  call void @help(ptr %q, i64 0)
  %c32 = trunc i64 %claims to i32
  %spp = getelementptr i8, ptr %q, i64 $Control.processor_spin_ns
  %spin = load i64, ptr %spp
  br label %await
await:
  %d = load atomic i32, ptr %dp seq_cst, align 4
  %all = icmp eq i32 %d, %c32
  br i1 %all, label %finished, label %spin_a_while
spin_a_while:
  call void @spin_while(ptr %dp, i32 %d, i64 %spin)
  %d1 = load atomic i32, ptr %dp seq_cst, align 4
  %moved = icmp ne i32 %d1, %d
  br i1 %moved, label %await, label %sleep
sleep:
  store atomic i32 1, ptr %ap seq_cst, align 4
  call void @futex_wait(ptr %dp, i32 %d, i64 10000000000)
  store atomic i32 0, ptr %ap seq_cst, align 4
  br label %await
finished:
  ret i32 0
}

define internal i32 @do_fill(ptr %p) {
entry:
  %dp = getelementptr i8, ptr %p, i64 $Fill.dst
  %pp = getelementptr i8, ptr %p, i64 $Fill.pattern
  %np = getelementptr i8, ptr %p, i64 $Fill.size_bytes
  %dst = load ptr, ptr %dp
  %pattern = load i64, ptr %pp
  %n = load i64, ptr %np
  %whole = lshr i64 %n, 3
  %some = icmp ne i64 %whole, 0
  br i1 %some, label %eight, label %rest
eight:
  %i = phi i64 [ 0, %entry ], [ %in, %eight ]
  %a = getelementptr i64, ptr %dst, i64 %i
  store i64 %pattern, ptr %a, align 1
  %in = add i64 %i, 1
  %more = icmp ult i64 %in, %whole
  br i1 %more, label %eight, label %rest
rest:
  %done = shl i64 %whole, 3
  %tail_some = icmp ult i64 %done, %n
  br i1 %tail_some, label %byte, label %out
byte:
  %j = phi i64 [ %done, %rest ], [ %jn, %byte ]
  %left = phi i64 [ %pattern, %rest ], [ %shifted, %byte ]
  %b = trunc i64 %left to i8
  %ba = getelementptr i8, ptr %dst, i64 %j
  store i8 %b, ptr %ba
  %shifted = lshr i64 %left, 8
  %jn = add i64 %j, 1
  %again = icmp ult i64 %jn, %n
  br i1 %again, label %byte, label %out
out:
  ret i32 0
}

define internal i32 @do_wait(ptr %q, ptr %p) {
entry:
  %cp = getelementptr i8, ptr %p, i64 $Wait.signal
  %vp = getelementptr i8, ptr %p, i64 $Wait.value
  %cell = load ptr, ptr %cp
  %value = load i64, ptr %vp
  %sp = getelementptr i8, ptr %q, i64 $Control.stop
  %ap = getelementptr i8, ptr %q, i64 $Control.abandon
  %npp = getelementptr i8, ptr %q, i64 $Control.processor_spin_ns
  %spin = load i64, ptr %npp
  br label %again
again:
  ; a GPU that stores there wakes nobody, so look again soon at first: a wait gets longer by a quarter at most
  %slice = phi i64 [ 200000, %entry ], [ %next, %late ]
  %v = call i64 @signal_wait(ptr %cell, i64 %value, i64 %slice, i64 %spin)
  %reached = icmp uge i64 %v, %value
  br i1 %reached, label %out, label %late
late:
  %stop = load atomic i32, ptr %sp seq_cst, align 4
  %abandon = load atomic i32, ptr %ap seq_cst, align 4
  %both = or i32 %stop, %abandon
  %give_up = icmp ne i32 %both, 0
  %quarter = lshr i64 %slice, 2
  %longer = add i64 %slice, %quarter
  %is_long = icmp ugt i64 %longer, 10000000
  %next = select i1 %is_long, i64 10000000, i64 %longer
  br i1 %give_up, label %refuse, label %again
refuse:
  ret i32 $Fault.ABANDONED_WAIT
out:
  ret i32 0
}

; run the packets of a block; 0, or the fault of the packet whose address then stands in fault_address
define internal i32 @do_block(ptr %q, ptr %block, i64 %words) {
entry:
  br label %next
next:
  %at = phi i64 [ 0, %entry ], [ %after, %done ]
  %left = sub i64 %words, %at
  %some = icmp sgt i64 %left, 0
  br i1 %some, label %read, label %out
read:
  %p = getelementptr i32, ptr %block, i64 %at
  %lp = getelementptr i8, ptr %p, i64 2
  %l16 = load i16, ptr %lp
  %l = zext i16 %l16 to i64
  %status = call i32 @do_packet(ptr %q, ptr %p, i64 %left)
  %bad = icmp ne i32 %status, 0
  br i1 %bad, label %fail, label %done
done:
  %after = add i64 %at, %l
  %sp = getelementptr i8, ptr %q, i64 $Control.stop
  %stop = load atomic i32, ptr %sp monotonic, align 4  ; whoever left us behind must not see the rest happen
  %stopped = icmp ne i32 %stop, 0
  br i1 %stopped, label %out, label %next
fail:
  ret i32 %status
out:
  ret i32 0
}

define internal i32 @do_packet(ptr %q, ptr %p, i64 %left) noinline {
entry:
  %hand = getelementptr i8, ptr %q, i64 $Control.packet
  store ptr %p, ptr %hand
  %op8 = load i8, ptr %p
  %lp = getelementptr i8, ptr %p, i64 2
  %l16 = load i16, ptr %lp
  %l = zext i16 %l16 to i64
  switch i8 %op8, label %unknown [ i8 $Opcode.NOP, label %least_nop
                                   i8 $Opcode.DISPATCH, label %least_dispatch
                                   i8 $Opcode.COPY, label %least_copy
                                   i8 $Opcode.FILL, label %least_fill
                                   i8 $Opcode.WAIT, label %least_wait
                                   i8 $Opcode.SIGNAL, label %least_signal
                                   i8 $Opcode.TIMESTAMP, label %least_timestamp
                                   i8 $Opcode.BARRIER, label %least_barrier
                                   i8 $Opcode.INDIRECT, label %least_indirect ]
least_nop:
  br label %check
least_dispatch:
  br label %check
least_copy:
  br label %check
least_fill:
  br label %check
least_wait:
  br label %check
least_signal:
  br label %check
least_timestamp:
  br label %check
least_barrier:
  br label %check
least_indirect:
  br label %check
check:
  %least = phi i64 [ $Nop.length_words, %least_nop ], [ $Dispatch.length_words, %least_dispatch ],
                   [ $Copy.length_words, %least_copy ], [ $Fill.length_words, %least_fill ],
                   [ $Wait.length_words, %least_wait ], [ $Signal.length_words, %least_signal ],
                   [ $Timestamp.length_words, %least_timestamp ], [ $Barrier.length_words, %least_barrier ],
                   [ $Indirect.length_words, %least_indirect ]
  %short = icmp ult i64 %l, %least
  %long = icmp ugt i64 %l, %left
  %odd = and i64 %l, 1
  %is_odd = icmp ne i64 %odd, 0
  %bad0 = or i1 %short, %long
  %bad = or i1 %bad0, %is_odd
  br i1 %bad, label %bad_length, label %run
run:
  %count_p = getelementptr i8, ptr %q, i64 $Control.packets
  %count = load i64, ptr %count_p
  %count1 = add i64 %count, 1
  store i64 %count1, ptr %count_p
  switch i8 %op8, label %unknown [ i8 $Opcode.NOP, label %ok
                                   i8 $Opcode.DISPATCH, label %dispatch
                                   i8 $Opcode.COPY, label %copy
                                   i8 $Opcode.FILL, label %fill
                                   i8 $Opcode.WAIT, label %wait
                                   i8 $Opcode.SIGNAL, label %signal
                                   i8 $Opcode.TIMESTAMP, label %timestamp
                                   i8 $Opcode.BARRIER, label %barrier
                                   i8 $Opcode.INDIRECT, label %indirect ]
dispatch:
  %s1 = call i32 @do_dispatch(ptr %q, ptr %p)
  br label %result
copy:
  %cdp = getelementptr i8, ptr %p, i64 $Copy.dst
  %csp = getelementptr i8, ptr %p, i64 $Copy.src
  %cnp = getelementptr i8, ptr %p, i64 $Copy.size_bytes
  %cd = load ptr, ptr %cdp
  %cs = load ptr, ptr %csp
  %cn = load i64, ptr %cnp
  %cr = call ptr @memmove(ptr %cd, ptr %cs, i64 %cn)
  br label %ok
fill:
  %s3 = call i32 @do_fill(ptr %p)
  br label %result
wait:
  %s4 = call i32 @do_wait(ptr %q, ptr %p)
  br label %result
signal:
  %gcp = getelementptr i8, ptr %p, i64 $Signal.signal
  %gvp = getelementptr i8, ptr %p, i64 $Signal.value
  %gc = load ptr, ptr %gcp
  %gv = load i64, ptr %gvp
  call void @signal_set(ptr %gc, i64 %gv)
  br label %ok
timestamp:
  %tap = getelementptr i8, ptr %p, i64 $Timestamp.address
  %ta = load ptr, ptr %tap
  %tn = call i64 @now_ns()
  store i64 %tn, ptr %ta, align 1
  br label %ok
barrier:
  fence seq_cst
  br label %ok
indirect:
  %iap = getelementptr i8, ptr %p, i64 $Indirect.address
  %isp = getelementptr i8, ptr %p, i64 $Indirect.size_words
  %ia = load ptr, ptr %iap
  %is = load i64, ptr %isp
  %s8 = call i32 @do_block(ptr %q, ptr %ia, i64 %is)
  ret i32 %s8
ok:
  ret i32 0
result:
  %s = phi i32 [ %s1, %dispatch ], [ %s3, %fill ], [ %s4, %wait ]
  %good = icmp eq i32 %s, 0
  br i1 %good, label %ok, label %fault
bad_length:
  br label %fault
unknown:
  br label %fault
fault:
  %code = phi i32 [ %s, %result ], [ $Fault.BAD_LENGTH, %bad_length ], [ $Fault.UNKNOWN_OPCODE, %unknown ]
  %fap = getelementptr i8, ptr %q, i64 $Control.fault_address
  store ptr %p, ptr %fap
  ret i32 %code
}

define ptr @processor_main(ptr %q) {
entry:
  %pp = getelementptr i8, ptr %q, i64 $Control.put
  %gp = getelementptr i8, ptr %q, i64 $Control.get
  %dp = getelementptr i8, ptr %q, i64 $Control.doorbell
  %ap = getelementptr i8, ptr %q, i64 $Control.asleep
  %fp = getelementptr i8, ptr %q, i64 $Control.fault
  %sp = getelementptr i8, ptr %q, i64 $Control.stop
  %rp = getelementptr i8, ptr %q, i64 $Control.ring
  %wp = getelementptr i8, ptr %q, i64 $Control.ring_words
  %np = getelementptr i8, ptr %q, i64 $Control.processor_spin_ns
  %ring = load ptr, ptr %rp
  %ring_words = load i64, ptr %wp
  %mask = sub i64 %ring_words, 1
  %spin = load i64, ptr %np
  %ep = getelementptr i8, ptr %q, i64 $Control.processor_long_spin_ns
  %long_spin = load i64, ptr %ep
  %patience = alloca i64
  store i64 %spin, ptr %patience
  br label %look
look:
  %stop = load atomic i32, ptr %sp seq_cst, align 4
  %stopped = icmp ne i32 %stop, 0
  br i1 %stopped, label %out, label %check
check:
  %seen = load atomic i32, ptr %dp seq_cst, align 4
  %put = load atomic i64, ptr %pp acquire, align 8
  %get = load i64, ptr %gp
  %empty = icmp eq i64 %put, %get
  br i1 %empty, label %idle, label %run
idle:
  %idle_since = call i64 @now_ns()
  %for = load i64, ptr %patience
  call void @spin_while(ptr %dp, i32 %seen, i64 %for)
  %now = load atomic i32, ptr %dp seq_cst, align 4
  %changed = icmp ne i32 %now, %seen
  br i1 %changed, label %rung, label %announce
announce:
  store atomic i32 1, ptr %ap seq_cst, align 4
  call void @futex_wait(ptr %dp, i32 %seen, i64 10000000000)
  store atomic i32 0, ptr %ap seq_cst, align 4
  br label %rung
rung:  ; who rings at short intervals will ring again soon, and is spared the system call that wakes us
  %idle_until = call i64 @now_ns()
  %gap = sub i64 %idle_until, %idle_since
  %is_short = icmp ult i64 %gap, %long_spin
  %next = select i1 %is_short, i64 %long_spin, i64 %spin
  store i64 %next, ptr %patience
  br label %look
run:
  %index = and i64 %get, %mask
  %p = getelementptr i32, ptr %ring, i64 %index
  %to_put = sub i64 %put, %get
  %to_end = sub i64 %ring_words, %index
  %left = call i64 @llvm.umin.i64(i64 %to_put, i64 %to_end)
  %lp = getelementptr i8, ptr %p, i64 2
  %l16 = load i16, ptr %lp
  %l = zext i16 %l16 to i64
  %status = call i32 @do_packet(ptr %q, ptr %p, i64 %left)
  %bad = icmp ne i32 %status, 0
  br i1 %bad, label %fail, label %advance
advance:
  %after = add i64 %get, %l
  store atomic i64 %after, ptr %gp release, align 8
  br label %look
fail:
  %tlp = getelementptr i8, ptr %q, i64 $Control.timeline
  %tl = load ptr, ptr %tlp
  store atomic i32 %status, ptr %fp seq_cst, align 4
  call void @futex_wake(ptr %tl, i32 2147483647)
  br label %halted
halted:
  %stop2 = load atomic i32, ptr %sp seq_cst, align 4
  %stopped2 = icmp ne i32 %stop2, 0
  br i1 %stopped2, label %out, label %halt
halt:
  %f = load atomic i32, ptr %fp seq_cst, align 4
  %cleared = icmp eq i32 %f, 0
  br i1 %cleared, label %look, label %nap
nap:
  call void @futex_wait(ptr %fp, i32 %f, i64 1000000000)
  br label %halted
out:
  %up = getelementptr i8, ptr %q, i64 $Control.running
  %u = atomicrmw sub ptr %up, i32 1 seq_cst
  call void @futex_wake(ptr %up, i32 2147483647)
  ret ptr null
}

declare i64 @llvm.umax.i64(i64, i64)
declare i64 @llvm.umin.i64(i64, i64)
