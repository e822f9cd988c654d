"""What is known of each upstream's models: windows, token ratios, lessons.

Law: a change is counted, logged and stored; a request only reads.
"""
