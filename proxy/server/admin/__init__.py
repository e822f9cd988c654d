"""The proxy's own pages: those under /trimtab/ (the dashboard's page, data and events), and the metrics page.

Law: no page shows a credential. The dashboard only reads, but for erasing. Any worker answers for all, from the table
that all of them write. Text of messages is shown only if it is kept, and kept only if the configuration says so. No
figure is counted here a second time: totals are those of the metrics.
"""
