"""Commands that change the guest of an allocation."""
