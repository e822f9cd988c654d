"""The configuration files of the other gateways: minimal, one process, no logging, loopback.

Law: `{upstream}`, `{port}` and `{folder}` are filled in; nothing else changes between runs.
"""

from pathlib import Path

NGINX = """\
daemon off;
worker_processes 1;
pid {folder}/nginx.pid;
error_log {folder}/nginx.log;
events {{ worker_connections 4096; }}
http {{
  access_log off;
  tcp_nodelay on;
  keepalive_requests 1000000;
  client_max_body_size 64m;
  client_body_buffer_size 1m;
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  upstream origin {{ server 127.0.0.1:{upstream}; keepalive 256; keepalive_requests 1000000; }}
  server {{
    listen 127.0.0.1:{port} backlog=4096;
    location / {{
      proxy_pass http://origin;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_buffering off;
    }}
  }}
}}
"""
LITELLM = """\
model_list:
  - model_name: gpt-4o
    litellm_params: {{model: openai/gpt-4o, api_base: "http://127.0.0.1:{upstream}/v1", api_key: sk-bench}}
litellm_settings: {{telemetry: false, num_retries: 0, request_timeout: 120, callbacks: []}}
general_settings: {{}}
"""
TENSORZERO = """\
[gateway]
observability.enabled = false
[models.gpt-4o]
routing = ["origin"]
[models.gpt-4o.providers.origin]
type = "openai"
model_name = "gpt-4o"
api_base = "http://127.0.0.1:{upstream}/v1/"
api_key_location = "none"
"""


def write_configuration(text: str, file: Path, *, upstream_port: int, port: int) -> Path:
    """Write the file with its values filled in. The peer may write to its folder."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text.format(upstream=upstream_port, port=port, folder=file.parent), "utf-8")
    return file
