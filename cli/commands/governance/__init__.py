"""Commands about people, policies, proposals and the audit log."""
