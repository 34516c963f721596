package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/deltabus/deltabus-local/deltalog/store"
	"github.com/deltabus/deltabus-local/deltalog/store/storetest"
)

// s3Options are those of --store and --s3-endpoint.
func s3Options(address, endpoint string) (store.S3Options, error) {
	if address == "" {
		return store.S3Options{}, usagef("--s3-endpoint is the server of a bucket: give --store s3://BUCKET/PREFIX, too")
	}
	o, err := store.ParseS3URL(address)
	if err != nil {
		return o, usagef("--store: %w", err)
	}
	o.Endpoint = endpoint
	return o, nil
}

// checkStore tries whether a store keeps what tables need.
func checkStore(ctx context.Context, address, endpoint string) ([]checkJSON, error) {
	c := checkJSON{Check: "store"}
	start := time.Now()
	var st store.Store
	if strings.Contains(address, "://") || endpoint != "" {
		o, err := s3Options(address, endpoint)
		if err != nil {
			return nil, err
		}
		bucket, err := store.NewS3(o)
		if err != nil {
			return nil, err
		}
		if err := bucket.Probe(ctx); err != nil {
			c.Found, c.Remedy = err.Error(), "make the bucket and let these credentials read, write, list and delete there"
			if errors.Is(err, store.ErrDishonest) {
				c.Remedy = "keep no tables there"
			}
			return []checkJSON{c}, nil
		}
		st = bucket
	} else {
		dir, err := store.NewLocal(address, false)
		if err != nil {
			return nil, err
		}
		st = dir
	}
	problems := storetest.Check(ctx, st)
	if len(problems) == 0 {
		c.OK = true
		c.Found = fmt.Sprintf("%s keeps all %d promises, tried in %s", address, storetest.Checks(), time.Since(start).Round(100*time.Millisecond))
		return []checkJSON{c}, nil
	}
	var out []checkJSON
	for _, p := range problems {
		out = append(out, checkJSON{Check: "store: " + p.Check, Found: p.Found, Remedy: "keep no tables there"})
	}
	return out, nil
}
