"""The contract: conversion (`wire`), services without transport (`services`), and the gRPC listener (`grpc`)."""
