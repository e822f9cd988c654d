# Build where a compiler and the network are at hand; run from a slim image with neither. The base is pinned by the digest
# of its index of platforms; a newer one, with newer packages of Debian, is set with --build-arg BASE=...
ARG BASE=python:3.13.15-slim-trixie@sha256:9d2e5553305c7c7b0097999bb17187c69b921ccd6bc9d40e4bb5ebe652c00285
FROM ${BASE} AS build
WORKDIR /source
COPY deploy/requirements.lock ./
RUN python -m venv /opt/trimtab && /opt/trimtab/bin/pip install --no-cache-dir --require-hashes -r requirements.lock
COPY pyproject.toml README.md LICENSE ./
COPY src src
COPY proxy proxy
COPY rules rules
RUN /opt/trimtab/bin/pip install --no-cache-dir --no-deps .

FROM ${BASE}
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="trimtab" \
  org.opencontainers.image.description="A proxy that keeps long LLM sessions inside the context window" \
  org.opencontainers.image.licenses="MIT" \
  org.opencontainers.image.version="${VERSION}" \
  org.opencontainers.image.revision="${REVISION}"
RUN groupadd --system --gid 10001 trimtab && useradd --system --create-home --uid 10001 --gid 10001 trimtab
COPY --from=build /opt/trimtab /opt/trimtab
ENV PATH=/opt/trimtab/bin:$PATH PYTHONUNBUFFERED=1
# A container has its own loopback: listen on all of its addresses, and publish the port where you want it.
ENV TRIMTAB_LISTEN=0.0.0.0:8790
# Where summaries are kept, whoever the user is and whatever home that user has.
ENV XDG_DATA_HOME=/home/trimtab/.local/share
# By number: Kubernetes cannot tell of a name that it is not root (runAsNonRoot).
USER 10001:10001
# Mount a volume here to keep summaries when the container goes.
RUN mkdir -p -m 0700 /home/trimtab/.local/share/trimtab
VOLUME /home/trimtab/.local/share/trimtab
EXPOSE 8790
# The same as `trimtab healthcheck`, without a start of Python: bash itself asks the port in TRIMTAB_LISTEN.
HEALTHCHECK --interval=10s --timeout=5s --start-period=10s CMD ["bash", "-c", "[ -n \"$TRIMTAB_LISTEN\" ] || exec python -m trimtab.proxy.cli.healthcheck; exec 3<>/dev/tcp/127.0.0.1/${TRIMTAB_LISTEN##*:} && printf 'GET /trimtab/ready HTTP/1.0\\r\\nHost: localhost\\r\\n\\r\\n' >&3 && read -r _ status _ <&3 && [ \"$status\" = 200 ] && echo ready"]
ENTRYPOINT ["trimtab"]
CMD ["serve"]
