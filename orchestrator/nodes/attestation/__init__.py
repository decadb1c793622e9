"""What a node's TPM proves: keys, challenges and quotes of TPM 2.0. Pure."""
