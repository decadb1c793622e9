"""Attestation of nodes by their TPM."""
