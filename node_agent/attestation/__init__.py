"""The proof that this node has its TPM: what is sent, and the calls of the TPM."""
