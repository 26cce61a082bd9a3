-- Charges words that nodes of Tidegate share; knows no algorithm. A value is HEAD|LEASES|SECONDS|NANOSECONDS|VERSION (an
-- instant) or HEAD|LEASES|COUNT|0|VERSION; LEASES is EPOCH,NOW,BEFORE, tokens that are out, or nothing. Arguments: how many
-- questions; of each how many charges, and of each charge:
--   what, the place of its key, is it a shadow (1)
--   of a look and a clear nothing more; else from and until when it is right (microseconds), seconds to live, the place of the
--   key of those numbers that nodes have sent (0: none; else also the node, and the number of this charge: one that was made is
--   not made again)
--   of a swap the value after it, and the value before it
--   of an add and a lend: is it an instant (1), the head, what is added and the most above the floor (seconds and nanoseconds,
--   or a count and 0), the version of the policy; of an add the leases that it is right for; of a lend their epoch, how many
--   more are out of it and of the one before it, and the most that may be out
-- A question is charged whole or not at all. Answers the time in microseconds, and of each charge what became of it and the
-- value then.
local place, time = 0, redis.call('TIME')
local now_s, now_n = tonumber(time[1]), tonumber(time[2]) * 1000
local now = now_s * 1000000 + tonumber(time[2])
local values, lives, told = {}, {}, { string.format('%.0f', now) }

local function text()
  place = place + 1
  return ARGV[place]
end

local function number()
  place = place + 1
  return tonumber(ARGV[place])
end

local function charge()
  local c = { what = text(), key = number(), is_shadow = text() == '1' }
  if c.what == 'look' or c.what == 'clear' then return c end
  c.from, c.till, c.life, c.sent = number(), number(), number(), number()
  if c.sent > 0 then c.node, c.number = text(), text() end
  if c.what == 'swap' then
    c.after, c.before = text(), text()
    return c
  end
  c.is_instant, c.head = text() == '1', text()
  c.add_s, c.add_n, c.most_s, c.most_n, c.version = number(), number(), number(), number(), number()
  if c.what == 'add' then
    c.leases = text()
  else
    c.epoch, c.more, c.more_before, c.most_out = number(), number(), number(), number()
  end
  return c
end

local function value(key)
  if not values[key] then values[key] = redis.call('GET', KEYS[key]) or '' end
  return values[key]
end

-- The leases after a lend; nil: it does not fit them.
local function lend(c, leases)
  local epoch, lent, before = string.match(leases, '^(%d+),(%d+),(%d+)$')
  if epoch and tonumber(epoch) ~= c.epoch then return nil end
  lent, before = (tonumber(lent) or 0) + c.more, (tonumber(before) or 0) + c.more_before
  if lent < 0 or before < 0 or lent + before > c.most_out then return nil end
  if lent + before == 0 then return '' end
  return string.format('%.0f,%.0f,%.0f', c.epoch, lent, before)
end

-- What becomes of a charge, and the value after it; without one it does not fit, or this is not the value that it is for.
local function step(c, found)
  if c.what == 'look' then return 'looked' end
  if c.what == 'clear' then return 'charged', '' end
  if c.sent > 0 and redis.call('HGET', KEYS[c.sent], c.node) == c.number then return 'known' end
  if now < c.from or now >= c.till then return 'other' end
  if c.what == 'swap' then
    if found ~= c.before then return 'other' end
    return 'charged', c.after
  end
  local leases, s, n, floor_s, floor_n, version = '', 0, 0, 0, 0, c.version
  if found ~= '' then
    local head, out, found_s, found_n, found_version = string.match(found, '^(.*)|([%d,]*)|(%d+)|(%d+)|(%d+)$')
    if head ~= c.head then return 'other' end
    leases, s, n, version = out, tonumber(found_s), tonumber(found_n), math.max(version, tonumber(found_version))
  end
  if c.what == 'lend' then
    leases = lend(c, leases)
    if not leases then return 'other' end
  elseif leases ~= c.leases then
    return 'other'
  end
  if c.is_instant then floor_s, floor_n = now_s, now_n end
  if s < floor_s or (s == floor_s and n < floor_n) then s, n = floor_s, floor_n end
  s, n = s + c.add_s, n + c.add_n
  if n >= 1000000000 then s, n = s + 1, n - 1000000000 end
  local over_s, over_n = s - floor_s, n - floor_n
  if over_n < 0 then over_s, over_n = over_s - 1, over_n + 1000000000 end
  if over_s > c.most_s or (over_s == c.most_s and over_n > c.most_n) then
    return c.what == 'lend' and 'other' or 'refused'
  end
  return 'charged', string.format('%s|%s|%.0f|%.0f|%.0f', c.head, leases, s, n, version)
end

for _ = 1, number() do
  local charges, outcomes, after, is_charged = {}, {}, {}, true
  for i = 1, number() do
    charges[i] = charge()
    outcomes[i] = 'unasked'
    if is_charged then
      outcomes[i], after[i] = step(charges[i], value(charges[i].key))
      is_charged = outcomes[i] ~= 'other' and (outcomes[i] ~= 'refused' or charges[i].is_shadow)
    end
  end
  for i, c in ipairs(charges) do
    if outcomes[i] == 'charged' and is_charged then
      values[c.key] = after[i]
      lives[c.key] = c.life or 1
      if c.life and c.sent > 0 then
        redis.call('HSET', KEYS[c.sent], c.node, c.number)
        redis.call('EXPIRE', KEYS[c.sent], math.max(c.life, 60))
      end
    elseif outcomes[i] == 'charged' then
      outcomes[i] = 'spared'
    end
    told[#told + 1] = outcomes[i]
    told[#told + 1] = outcomes[i] == 'unasked' and '' or value(c.key)
  end
end
for key, life in pairs(lives) do
  redis.call('SET', KEYS[key], values[key], 'EX', life)
end
return told
