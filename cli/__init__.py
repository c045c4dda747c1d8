"""What people type: one file per command group, --json everywhere, errors caught here and only here."""
