"""What trimtab knows of each upstream's models: context windows and token ratios, asked for or learned.

Law: a change is counted, logged and stored; a request only reads.

The terms, and where each is explained:

- ratio, refuted, claim, `of_all` (what counts for all clients): records.py
- lesson, guess: lessons.py
- hypothesis, test: hypotheses.py
- vouched, taught: keeping.py
- believed tokens: model_policy.py
"""
