# Stand-in for Prometheus' or Alertmanager's own image where no registry answers: Debian's package, the original's paths.
ARG BASE_IMAGE
FROM ${BASE_IMAGE}
ARG PACKAGE
# A mirror that lags may carry a release file past its date; what it signs is still checked.
RUN apt-get -q -o Acquire::Check-Valid-Until=false update \
    && DEBIAN_FRONTEND=noninteractive apt-get -q -y install --no-install-recommends "$PACKAGE" \
    && rm -rf /var/lib/apt/lists/*
RUN program=${PACKAGE#prometheus-} && mkdir -p "/$program" "/etc/$program" \
    && chown 65534:65534 "/$program" \
    && if [ "$program" = alertmanager ]; then ln -s prometheus-alertmanager /usr/bin/alertmanager; fi \
    && printf '#!/bin/sh\nexec /usr/bin/%s "$@"\n' "$program" > /usr/local/bin/entrypoint && chmod 755 /usr/local/bin/entrypoint
USER 65534:65534
ENTRYPOINT ["/usr/local/bin/entrypoint"]
