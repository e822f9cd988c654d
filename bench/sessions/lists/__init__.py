"""What sessions cost by the price lists of real models, with caches that forget.

Law: prompts are recorded once and priced as often as wanted; only trimtab, which decides by prices, runs for each list.
"""
