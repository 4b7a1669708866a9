"""From a spec to a plan: a join, checked against the schemas of its inputs."""
