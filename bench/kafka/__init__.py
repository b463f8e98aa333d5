"""Kafka, to compare with."""
