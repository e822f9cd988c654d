"""The order of the rules: plan() decides, apply() carries out."""
