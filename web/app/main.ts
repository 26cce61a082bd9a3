/** Starts the dashboard. */
import './tokens.css';
import './base.css';
import './prefetch.ts';
import { mount } from 'svelte';
import App from './App.svelte';
import { connectSession } from './connect.ts';
import { clock } from './lib/state/clock.svelte.ts';
import { navigation } from './lib/state/navigation.svelte.ts';
import { keepPresses } from './lib/dom/presscapture.ts';
import './lib/state/settings.svelte.ts';

navigation.listen();
clock.start();
keepPresses();
connectSession();
mount(App, { target: document.body });
