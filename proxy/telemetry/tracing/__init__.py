"""Traces by OpenTelemetry.

Law: no text of a message and no credential is in a span. Nothing here delays or fails a request, and without
`tracing.otlp_endpoint` no library of OpenTelemetry is loaded.
"""
