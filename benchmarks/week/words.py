BEFORE = "{weeks} {seeds} {table} {by_kind}"
AFTER = "{servers}"
