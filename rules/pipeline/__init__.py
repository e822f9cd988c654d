"""The order of the rules: plan() decides, apply() carries out.

Law: this package holds the order of the rules, what is kept between requests, and the pins, which come after all rules.
"""
