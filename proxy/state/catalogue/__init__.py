"""What the package genai-prices knows about hosted models: context windows and prices.

Law: no network. The same question has the same answer while the process lives, and no answer is kept in the store.
"""
