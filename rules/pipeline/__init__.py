"""The order of the rules: plan() decides, apply() carries out.

Law: no rule stands here, only their order and what is kept between requests.
"""
