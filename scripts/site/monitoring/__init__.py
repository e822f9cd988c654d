"""What Prometheus and Grafana need to watch trimtab, made from the table of metrics."""
