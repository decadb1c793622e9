"""What every issuer of node certificates must do."""
