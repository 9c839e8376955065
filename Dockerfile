# A worker with everything in it: no network is used at run time but the one to sources, registry and Kafka.
#   docker build -t headrace .
#   docker run -v ./config:/config:ro -v headrace:/var/lib/headrace headrace standalone /config/worker.properties /config/connector.properties
# BASE is any Debian 12 or newer, or what is like it, by its digest: a tag alone may be another image tomorrow.
# This one is the index, for every architecture, of the bookworm-slim that was published on 2026-07-13. For another, ask
# `docker buildx imagetools inspect debian:bookworm-slim` for the digest of now. CI refuses a base without one.
ARG BASE=debian:bookworm-slim@sha256:7b140f374b289a7c2befc338f42ebe6441b7ea838a042bbd5acbfca6ec875818

FROM ${BASE} AS system
RUN apt-get update \
    && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
        ca-certificates openjdk-17-jre-headless python3 python3-venv \
    && apt-get clean && rm -rf /var/lib/apt/lists/*

FROM system AS build
WORKDIR /opt/headrace
ENV HEADRACE_CACHE=/opt/headrace/parts
# Set-up first: it is made again only when a lock changes, not with every line of code.
COPY requirements requirements
COPY service/__init__.py service/__init__.py
COPY service/setup service/setup
RUN PYTHONPATH=/opt/headrace python3 -S -m service.setup --without-archives
COPY . .
RUN .venv/bin/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --no-index . \
    && .venv/bin/headrace parts

FROM system
RUN useradd --uid 10001 --create-home --home-dir /var/lib/headrace --shell /usr/sbin/nologin headrace
COPY --from=build /opt/headrace/.venv /opt/headrace/.venv
COPY --from=build /opt/headrace/parts /opt/headrace/parts
ENV HEADRACE_CACHE=/opt/headrace/parts \
    PATH=/opt/headrace/.venv/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1
USER 10001
WORKDIR /var/lib/headrace
VOLUME /var/lib/headrace
EXPOSE 8083
HEALTHCHECK --interval=15s --timeout=5s --start-period=60s --retries=3 \
    CMD ["/opt/headrace/.venv/bin/python", "-I", "-S", "-c", "import os, urllib.request; urllib.request.urlopen(os.environ.get('HEADRACE_HEALTH_URL', 'http://127.0.0.1:8083/health/live'), timeout=4)"]
ENTRYPOINT ["headrace"]
CMD ["help"]
