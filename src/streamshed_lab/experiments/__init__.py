"""One experiment file per paper: workload × policy × parameters → tables, charts, claims."""
