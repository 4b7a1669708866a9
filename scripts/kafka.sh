#!/usr/bin/env bash
# Copies the jars of a Kafka broker and of Spark's connector to build/kafka, with Maven.
#
# The connector is not released for every Spark: these jars, one by one, work together with Spark 4.3.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
command -v mvn >/dev/null || { echo "kafka: Maven is needed (on Debian: apt-get install maven)" >&2; exit 1; }
jars=$PWD/build/kafka
[[ -e $jars/.ready ]] && exit
mvn -q -B -f tests/kafka/pom.xml dependency:copy-dependencies -DoutputDirectory="$jars/broker"
for artifact in \
    org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0 \
    org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0 \
    org.apache.kafka:kafka-clients:3.9.2 \
    org.apache.commons:commons-pool2:2.13.1; do
    mvn -q -B dependency:copy -Dartifact="$artifact" -DoutputDirectory="$jars/connector"
done
touch "$jars/.ready"
