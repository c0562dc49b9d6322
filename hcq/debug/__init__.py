"""The debugger of queues and kernels on emulated GPUs, which also goes backwards.

In       `python -m hcq debug`: a program, or a trace
Out      a prompt, a script's answers, or the Debug Adapter Protocol
Changes  nothing that the program sees
Next     docs/debugger.md (for people)

    command.py                         the verb: what is debugged, and with which face
    session.py, backwards.py           stops launches, takes who asks backwards and forwards
    timeline.py, pages.py              recorded launches, snapshots, runs again; the memory for them
    moment.py                          what all vendors show: amd.py, amd_sites.py; nv.py; metal.py, metal_steps.py
    points.py, plans.py, expression.py what to stop at: breakpoints, steps, conditions
    origin.py, seen.py                 where a byte or a register comes from; what a block did, to look that up in
    findings.py                        what HCQ_SANITIZE finds, as places to stop at
    packets.py, names.py               packets that were done; names of kernels, buffers, lines
    commands.py, looking.py            what a person can say: arguments.py, show.py (what is printed), help.py
    terminal.py                        the prompt, scripts
    dap.py                             editors: dap_protocol.py, dap_views.py, dap_look.py, dap_server.py
    run_program.py                     the program that is debugged
"""
