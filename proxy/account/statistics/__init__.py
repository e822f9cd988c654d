"""What requests have cost, by day, model and client: sums that outlive the process.

Law: sums hold no message text, no key and no id of a tenant. Money is counted in whole nanodollars, so that sums are
exact. A fault of the store costs no request anything.
"""
