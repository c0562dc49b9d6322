"""Rules that a submission must keep, the same for every kind of device.

rule.py       what a rule and a finding are
memory.py     what is known of buffers; state.py of signals, programs and order; submission_check.py one submission
packets.py, addresses.py, signals.py, order.py, launches.py, blocks.py   the rules
races.py      rules on what kernels do, as emulated GPUs find it
waits.py      waits that never end
"""
