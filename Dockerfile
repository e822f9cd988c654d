# Build the wheels where a compiler and the network are at hand; run from a slim image with neither.
FROM python:3.13-slim AS build
WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY proxy proxy
COPY rules rules
RUN python -m venv /opt/trimtab && /opt/trimtab/bin/pip install --no-cache-dir '.[redis]'

FROM python:3.13-slim
RUN useradd --system --create-home --uid 10001 trimtab
COPY --from=build /opt/trimtab /opt/trimtab
ENV PATH=/opt/trimtab/bin:$PATH PYTHONUNBUFFERED=1
# A container has its own loopback: listen on all of its addresses, and publish the port where you want it.
ENV TRIMTAB_LISTEN=0.0.0.0:8790
USER trimtab
# Summaries are kept here; mount a volume to keep them when the container goes.
RUN mkdir -p -m 0700 /home/trimtab/.local/share/trimtab
VOLUME /home/trimtab/.local/share/trimtab
EXPOSE 8790
HEALTHCHECK --interval=10s --timeout=3s --start-period=5s \
  CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8790/trimtab/ready', timeout=2)"]
ENTRYPOINT ["trimtab"]
CMD ["serve"]
