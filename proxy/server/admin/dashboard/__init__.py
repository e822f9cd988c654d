"""The dashboard: its page, its data as JSON, and its stream of events.

Law: it only reads, but for erasing. Any worker answers for all, from the table that all of them write. Text of messages
is shown only if it is kept, and text is kept only if the configuration says so. No figure is counted here a second
time: totals are those of the metrics.
"""
