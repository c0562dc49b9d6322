"""Help: what `hcq-trace VERB --help` says after the options: what the verb is for, commands to try, how to read it.

In       a verb
Out      text
Changes  nothing
Next     tools/hcq_trace.py (who prints it), docs/trace.md (the same as a tutorial)
"""

from __future__ import annotations

HELP = {
    "record": """
Sets HCQ_TRACE for the command and runs it. The file is written while the command runs: a program that is
killed leaves everything up to that moment. A trace without --data has what was asked of the device; with
--data it is a capsule, which also has what was in memory and can be replayed.

  hcq-trace record -- python train.py                       writes run.hcqtrace
  hcq-trace record -o bug.hcqtrace --data -- python bug.py  a capsule to send to somebody
  HCQ_EMULATE=amd:gfx1100 HCQ_DEVICE=AMD hcq-trace record -- python train.py    for a GPU that is not there

Exit status: the command's; 128 and the number of the signal that ended it.
""",
    "show": """
One block for each submission, which is one doorbell:

  #17 +0.001250 s  CPU main: 36 words, 12.3 us on the device, train.py:88 in step
       0 Dispatch  add(out+0x100, a, 1024) grid=(4,1,1)
      24 Signal    timeline = 17

#17 is the timeline's value when it is done. A packet line begins with the word where the packet stands in the
ring; the text is read from the words, by the layouts that encoded them. "the command was:" below a packet
means that the words do something else than they were meant to. An address is a buffer and an offset; (freed)
and unknown@... are bugs, mostly.

  hcq-trace show run.hcqtrace --last 3
  hcq-trace show run.hcqtrace --kernel softmax --hex
  hcq-trace show run.hcqtrace --submission 40..50 --memory
  hcq-trace show run.hcqtrace --json | jq 'select(.kind == "submission") | .kernels'
""",
    "disasm": """
Instructions of the recorded object, with labels for jumps and names for calls. Kernels of the tensor layer
also have the text that they were compiled from.

  hcq-trace disasm run.hcqtrace                    the kernels, and how often each was launched
  hcq-trace disasm run.hcqtrace softmax            one of them; a part of the name is enough when only one has it
  hcq-trace disasm run.hcqtrace softmax --source   its loops, and the code that the assembler was given
""",
    "lint": """
The rules that HCQ_VALIDATE=1 checks before the doorbell, after the fact and for the whole trace. A finding
names the rule, the packet, the buffer and the line that submitted it; docs/rules/ has a page for each rule.

  hcq-trace lint run.hcqtrace
  hcq-trace lint run.hcqtrace --rule unordered-access
  hcq-trace lint --list                            every rule, and what must hold

Exit status: 1 when a rule of level "error" is broken.
""",
    "diff": """
Aligns the submissions of both traces and compares kernels by their code, numbers bit for bit, buffers by who
made them and in which order they are used. Addresses, handles and times never count.

  hcq-trace diff good.hcqtrace bad.hcqtrace

Exit status: 0 for "same work", 1 for anything else.
""",
    "stats": """
How busy each queue was and its longest gaps, then a table of kernels, copies and fills. Devices put a time
stamp before and after each submission while they are traced; a kernel that always shares its submission has a
time only with HCQ_PROFILE=1.

  HCQ_PROFILE=1 hcq-trace record -- python train.py
  hcq-trace stats run.hcqtrace
""",
    "graph": """
Which submission waits for which, over all devices of the trace. All queues are advanced together until none
moves; what stands then can never go on: a deadlock, or a wait that nobody signals.

  hcq-trace graph run.hcqtrace
  hcq-trace graph run.hcqtrace --dot | dot -Tsvg > graph.svg

Exit status: 1 when something can never go on.
""",
    "export": """
  hcq-trace export run.hcqtrace --perfetto -o run.pftrace   open it at https://ui.perfetto.dev
  hcq-trace export run.hcqtrace --csv > run.csv             a row for each command, for a spreadsheet
  hcq-trace export run.hcqtrace --json | jq .devices        everything that `show --json` says, and the devices
""",
    "replay": """
Runs the recorded commands with the recorded code at new addresses, and compares what the program read back
and what every submission left in its buffers. The trace must be a capsule (record --data). It holds machine
code, and this runs it: replay only what you trust.

  hcq-trace replay capsule.hcqtrace
  HCQ_EMULATE=amd:gfx1100 hcq-trace replay capsule.hcqtrace    on an emulated GPU

Exit status: 0 for the same results bit for bit, 1 for others; how much was compared is said beside it.
""",
    "minimise": """
Leaves out half of the submissions, then quarters, and so on, as long as the failure stays; then the buffers,
code and contents that only they needed.

  hcq-trace minimise run.hcqtrace --rule address-freed -o small.hcqtrace
  hcq-trace minimise capsule.hcqtrace --mismatch -o small.hcqtrace
  hcq-trace minimise run.hcqtrace --check 'python looks_fine.py {}' -o small.hcqtrace
""",
    "serve": """
Prints an address on this machine and answers there until Ctrl-C. The page has the timeline of each queue with
arrows from signals to waits, packets, kernels with source and machine code, and the memory map over time; ?
shows its keys. Nothing is asked of other machines.

  hcq-trace serve run.hcqtrace --open
  ssh -L 8000:127.0.0.1:8000 far-away hcq-trace serve run.hcqtrace --port 8000
""",
    "decode": """
  hcq-trace decode ioctls.log                      a log of another program's calls, with their structures by name
  hcq-trace decode words.txt --nv sm_90            words of a pushbuffer as methods
""",
    "edit": """
One block of text for each record. Lengths, counts and checksums are left out where `assemble` can work them
out, so that a packet may be changed, added or removed with an editor. What is not changed comes back bit for
bit.

  hcq-trace edit run.hcqtrace > run.txt
  hcq-trace assemble run.txt -o changed.hcqtrace
""",
    "assemble": """
  hcq-trace assemble run.txt -o changed.hcqtrace
  hcq-trace edit run.hcqtrace | sed 's/pattern=0x0/pattern=0xff/' | hcq-trace assemble - > changed.hcqtrace
  hcq-trace lint changed.hcqtrace
""",
}
