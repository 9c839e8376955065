"""Parts that fetchers share: http client, authentication, pagination, framing, rate limits. No fetcher lives here."""
