"""`trimtab demo`: a session of our own making, replayed through a real proxy to a simulated upstream."""
