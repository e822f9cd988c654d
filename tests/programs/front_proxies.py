"""Real front proxies, nginx and HAProxy: all clients share a few connections to the server."""

import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from programs.redis_server import find_free_port

PROGRAMS = {"nginx": shutil.which("nginx"), "haproxy": shutil.which("haproxy")}
_NGINX_HEAD = """
daemon off;
pid {directory}/pid;
error_log stderr;
worker_processes 1;
events {{ worker_connections 256; }}
http {{
  access_log off;
  client_body_temp_path {directory}/body;
  proxy_temp_path {directory}/proxy;
  fastcgi_temp_path {directory}/fastcgi;
  uwsgi_temp_path {directory}/uwsgi;
  scgi_temp_path {directory}/scgi;
"""
_NGINX = """
  upstream shared {{ server 127.0.0.1:{server}; keepalive 1; }}
  server {{
    listen 127.0.0.1:{port};
    location / {{
      proxy_pass http://shared;
      proxy_http_version 1.1;
      proxy_request_buffering off;
      proxy_buffering off;
      proxy_set_header Host localhost;
      proxy_set_header Connection "";
    }}
  }}
}}
"""
_HAPROXY = """
defaults
  mode http
  timeout connect 5s
  timeout client 10s
  timeout server 10s
  http-reuse always
frontend front
  bind 127.0.0.1:{port}
  default_backend shared
backend shared
  server one 127.0.0.1:{server} pool-max-conn 1
"""


@contextmanager
def run_front_proxy(name: str, server_port: int) -> Iterator[int]:
    """Run the program in front of a local server. Yields the program's port."""
    text = {"nginx": _NGINX, "haproxy": _HAPROXY}[name].replace("{server}", str(server_port))
    with (
        tempfile.TemporaryDirectory(prefix="trimtab-front-") as directory,
        run_configured(name, text, Path(directory)) as port,
    ):
        yield port


@contextmanager
def run_configured(name: str, text: str, directory: Path) -> Iterator[int]:
    """Run the program with a configuration, after {directory} and {port} are filled in. Yields its port.

    Of nginx's configuration `text` is what stands within `http`, and its end.
    """
    program = PROGRAMS[name]
    assert program is not None
    port = find_free_port()
    path = directory / "front.conf"
    head = _NGINX_HEAD if name == "nginx" else ""
    path.write_text((head + text).format(directory=directory, port=port))
    options = {"nginx": ["-p", str(directory), "-c", str(path)], "haproxy": ["-f", str(path)]}[name]
    process = subprocess.Popen([program, *options], stderr=subprocess.DEVNULL)
    try:
        _wait_for(port, process)
        yield port
    finally:
        process.terminate()  # not kill(): nginx would not end its worker process
        process.wait(30)


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    """Wait until the program listens."""
    for _ in range(1500):
        assert process.poll() is None, "it did not start"
        with socket.socket() as client:
            if client.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.02)
    raise TimeoutError
