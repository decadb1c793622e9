"""Commands about operators and users: approvals of a second operator, the login of a user."""
