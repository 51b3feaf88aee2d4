"""The contract: conversion (`wire`), services without transport (`services`), and the listeners (`grpc`, `web`)."""
