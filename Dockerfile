# Build the wheels where a compiler and the network are at hand; run from a slim image with neither.
FROM python:3.13-slim AS build
WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY src src
COPY proxy proxy
COPY rules rules
RUN python -m venv /opt/trimtab && /opt/trimtab/bin/pip install --no-cache-dir '.[otel,redis]'

FROM python:3.13-slim
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
# The same as `trimtab healthcheck`, started faster: it asks where TRIMTAB_LISTEN, or `listen` of TRIMTAB_CONFIG, says.
HEALTHCHECK --interval=10s --timeout=5s --start-period=10s CMD ["python", "-m", "trimtab.proxy.cli.healthcheck"]
ENTRYPOINT ["trimtab"]
CMD ["serve"]
