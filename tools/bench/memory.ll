; how fast memory is read: 32 floats a turn, added up so that nothing is left out

define void @read(ptr %memory, ptr %unused, i64 %count) {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %a = phi <16 x float> [ zeroinitializer, %entry ], [ %a2, %loop ]
  %b = phi <16 x float> [ zeroinitializer, %entry ], [ %b2, %loop ]
  %p = getelementptr float, ptr %memory, i64 %i
  %q = getelementptr float, ptr %p, i64 16
  %x = load <16 x float>, ptr %p, align 64
  %y = load <16 x float>, ptr %q, align 64
  %a2 = fadd <16 x float> %a, %x
  %b2 = fadd <16 x float> %b, %y
  %next = add i64 %i, 32
  %more = icmp slt i64 %next, %count
  br i1 %more, label %loop, label %done
done:
  %s = fadd <16 x float> %a2, %b2
  store <16 x float> %s, ptr %memory, align 64
  ret void
}
; how fast memory is copied: 16 floats a turn, past the caches

define void @copy(ptr %memory, ptr %other, i64 %count) {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %p = getelementptr float, ptr %memory, i64 %i
  %q = getelementptr float, ptr %other, i64 %i
  %x = load <16 x float>, ptr %p, align 64
  store <16 x float> %x, ptr %q, align 64, !nontemporal !0
  %next = add i64 %i, 16
  %more = icmp slt i64 %next, %count
  br i1 %more, label %loop, label %done
done:
  ret void
}
!0 = !{i32 1}
