"""The order of the rules: plan() decides, apply() carries out.

Law: this package holds no rule, only the order of the rules and what is kept between requests.
"""
