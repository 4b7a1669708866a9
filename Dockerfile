# An image for drivers and executors: Python, Java, Spark and the common kernels, compiled ahead. It runs
# as a user without a home and writes nothing to the image. tests/test_container.py runs these steps.
#
#   docker build -t streamshed .
#   docker build -t streamshed --build-arg BASE=IMAGE .     # your Spark image, with Python 3.11 or later
#   docker run --shm-size 2g streamshed                     # what `streamshed doctor` finds
#   docker run --shm-size 2g streamshed python /opt/streamshed/examples/ad_funnel.py /tmp/funnel
ARG BASE=python:3.12-slim-bookworm
FROM ${BASE}

USER root
RUN command -v java || { apt-get update \
    && apt-get install -y --no-install-recommends openjdk-17-jre-headless procps \
    && rm -rf /var/lib/apt/lists/*; }

COPY pyproject.toml hatch_build.py README.md LICENSE /opt/streamshed/source/
COPY src /opt/streamshed/source/src
RUN pip install --no-cache-dir '/opt/streamshed/source[connect]' && rm -rf /opt/streamshed/source

# For other joins than the common ones, name them here, or compile them in an image of your own.
RUN streamshed compile common --to /opt/streamshed/kernels
ENV STREAMSHED_KERNELS=/opt/streamshed/kernels PYSPARK_PYTHON=python3
COPY examples /opt/streamshed/examples

# Java needs a name for whoever runs it. Nothing of this user is in the image, not even a home.
RUN id 185 || useradd --uid 185 --user-group --no-create-home --home-dir /nonexistent spark
USER 185
CMD ["streamshed", "doctor"]
