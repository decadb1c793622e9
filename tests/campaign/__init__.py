"""The campaign: the whole stack under load while it is hurt at random from a seed, then judged (docs/explanation/campaign.md)."""
