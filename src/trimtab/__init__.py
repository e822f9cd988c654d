"""trimtab: a transparent OpenAI-compatible proxy that compacts long conversations in flight.

`trimtab.proxy` is the program, `trimtab.rules` the decisions without I/O. Both folders lie at the top of the
repository; the links beside this file bring them under one import name, which no other package takes.
"""
