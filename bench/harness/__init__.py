"""The tools of measurements: processes, the plain upstream, the probe of the event loop, counters and codecs.

Law: every process ends with the block that started it; loopback only.
"""
