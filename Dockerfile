# Drivers and executors: Python, Java, Spark, and the common kernels, compiled ahead. It runs as a user
# without a home, and writes nothing to the image.
#
#   docker build -t streamshed .
#   docker build -t streamshed --build-arg BASE=IMAGE .     # a Spark image of yours, with Python 3.11 or later
#   docker run --shm-size 2g streamshed
ARG BASE=python:3.12-slim-bookworm
FROM ${BASE}

USER root
RUN command -v java || { apt-get update \
    && apt-get install -y --no-install-recommends openjdk-17-jre-headless procps \
    && rm -rf /var/lib/apt/lists/*; }

COPY pyproject.toml README.md LICENSE /opt/streamshed/source/
COPY src /opt/streamshed/source/src
RUN pip install --no-cache-dir '/opt/streamshed/source[connect]' && rm -rf /opt/streamshed/source

# Other joins than the common ones: name them here, or compile them in your own image.
RUN streamshed compile common --to /opt/streamshed/kernels
ENV STREAMSHED_KERNELS=/opt/streamshed/kernels PYSPARK_PYTHON=python3

USER 185
CMD ["streamshed", "doctor"]
