"""Help: what the prompt says when it is asked, for people who have never stepped a GPU.

In       a topic
Out      text
Next     commands.py (who prints it), docs/debugger.md (a tutorial)
"""

from __future__ import annotations

OVERVIEW = """You look at the program from a wave's side: a wave (NVIDIA: a warp) is 32 or 64 lanes that share one
program counter, and each lane is a thread of yours. The prompt stops *before* an instruction.

stop at things      break, watch, points, delete
go forward          continue, step, stepl, next, wave, barrier, finish
go back             reverse-step, reverse-stepl, reverse-continue, goto, origin
look                where, regs, lanes, waves, print, mem, lds, scratch, disasm, list, packets, launches, info, why
choose              wave N, lane N, thread B T

`help COMMAND` explains one, with examples. An empty line repeats the last step.
A first tour:  break kernel *   continue   step   regs   lanes   waves   reverse-step   origin v1   continue
"""

TOPICS: dict[str, str] = {
    "break": """break kernel NAME            stops before the first instruction of a kernel; * is any
break line FILE:N | N          at a line of the source, or of the PTX
break pc ADDRESS               at an instruction: its address, or its offset in the kernel
break text WORDS               at instructions whose text has these words: break text global_store
break packet TYPE [F=V ...]    at a packet of a queue: break packet DispatchDirect dim_x>=4, break packet * ;
                               =, !=, <, <=, >, >=, and names of values: break packet SEM_EXECUTE operation=RELEASE
break submission N             at the N-th submission of the process, before its doorbell
break finding                  at what --sanitize WORDS (HCQ_SANITIZE) finds, before the access; also after a launch
                               that reached beyond its memory
break if CONDITION             at any instruction where it holds; slow, but it finds out when
Those of instructions take `if CONDITION` at their end, over registers, lane, wave, block, thread:
break line 7 if v3 > 9 and lane == 5. `in KERNEL` confines them: break line 7 in matmul*""",
    "watch": """watch ADDRESS|BUFFER[+OFFSET] [BYTES]    stops before a store to these bytes (4 without BYTES)
watch lds OFFSET [BYTES] [block N]        the same in memory that a block shares
rwatch ...                                loads, too
The stop is before the store: `step` once, and `mem` shows what it wrote. reverse-continue finds the one before.""",
    "points": "points   lists what stops the program, and how often it did. delete N, disable N, enable N; delete all",
    "continue": "continue (c)   on until a point stops it, or the program ends. From the past: to the present, and on.",
    "step": "step [N] (s)   to the next instruction of this wave, or the N-th. Other waves may run in between.",
    "stepl": "stepl (l)   to the next line of the source, or of the PTX, of this wave.",
    "next": "next wave   to the next instruction that another wave executes.",
    "barrier": "barrier   to the next barrier of this wave's block.",
    "finish": "finish   to the end of this wave's block.",
    "reverse-step": "reverse-step [N] (rs)   to the instruction of this wave before this one, or the N-th.",
    "reverse-stepl": "reverse-stepl (rl)   to the line of this wave before this one.",
    "reverse-continue": "reverse-continue (rc)   back to the last point that would have stopped it; else to the start.",
    "goto": "goto LAUNCH [STEP]   to a place by number, as stops print it. `goto present`: where the program is.",
    "origin": """origin ADDRESS|BUFFER[+OFFSET] [BYTES]    which store wrote this, and from what: registers, loads
origin REGISTER [LANE]                     which instruction wrote a register of this wave, and from what
origin lds OFFSET                          the same of memory that this block shares
The program is run again from snapshots, and watched. What is asked about is memory here and now, so go to where it
is wrong first. It ends at arguments, and at what the host or a copy wrote. The 40 nearest values are shown; of all of
them, up to 5000, the lines that made them: those first that the fewest lanes of a block executed.""",
    "regs": """regs [NAME ...] [as TYPE]   registers of this lane and its neighbours: regs v0 v1 as f32
regs v3 all                  one register in all lanes; those that are off in brackets
Types: i8 u8 i16 u16 f16 i32 u32 f32 i64 u64 f64. Without a name: what the instruction reads and writes.""",
    "lanes": "lanes [NAME ...] [as TYPE]   the lanes of this wave as a table; lanes that are alike share a line.",
    "waves": "waves   all resident waves: which lanes are on, where, what they wait for. * is the one you look at.",
    "print": "print EXPRESSION (p)   in this lane: print v3 * 4 + s2, print f32(v3), print block",
    "mem": """mem ADDRESS|BUFFER[+OFFSET] [BYTES] [as TYPE]   memory at this place in time: mem C+0x40 64 as f32
A buffer is named as `info` lists it, or by letters that its name alone begins with; blanks: mem "data (64, 48)+4".""",
    "lds": "lds [OFFSET] [BYTES] [as TYPE]   memory that this wave's block shares.",
    "scratch": "scratch [OFFSET] [BYTES] [as TYPE]   this lane's own memory.",
    "disasm": "disasm [N]   code around here, with lines of the source where they are known. list is the same.",
    "where": "where   launch, step, wave, instruction, line, packet.",
    "why": "why   why the lanes of this wave are on that are.",
    "packets": "packets [N]   the latest packets that emulated processors did; those that began launches say which.",
    "launches": "launches   the launches that are recorded, which you can go back to.",
    "info": "info   what is recorded, how much memory that takes, devices and buffers.",
    "wave": "wave N   look at another wave. lane N, thread BLOCK THREAD: at a lane of it.",
    "quit": "quit (q)   ends the program, and the debugger.",
    "detach": "detach   lets the program run to its end as if nobody looked.",
}
